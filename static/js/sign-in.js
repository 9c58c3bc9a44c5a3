// The token stands behind `#`, which no browser sends: move it into the form and POST it, and forget the address.
(() => {
  const token = decodeURIComponent(location.hash.slice(1)).replace(/^token=/, "");
  if (!token) return;
  history.replaceState(null, "", location.pathname);
  const form = document.getElementById("sign-in-form");
  form.elements.token.value = token;
  form.submit();
})();
