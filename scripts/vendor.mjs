// Rebuilds static/vendor from npm tarballs: `node scripts/vendor.mjs`.
// Nothing is fetched when the service runs; the result is committed, and VENDOR.json holds what a
// test compares: version, npm integrity of each tarball, SHA-256 of each file, licence.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const vendor = join(here, "..", "static", "vendor");
const work = mkdtempSync(join(tmpdir(), "vendor-"));

const copied = [
  { name: "htmx.org", version: "4.0.1", licence: "0BSD",
    files: ["dist/htmx.min.js", "dist/ext/hx-ws.min.js", "LICENSE"] },
  { name: "uplot", version: "1.6.32", licence: "MIT",
    files: ["dist/uPlot.iife.min.js", "dist/uPlot.min.css", "LICENSE"] },
  { name: "bootstrap", version: "5.3.8", licence: "MIT",
    files: ["dist/css/bootstrap.min.css", "dist/js/bootstrap.bundle.min.js", "LICENSE"] },
];
// For the browser tests only; never served.
const tested = [{ name: "axe-core", version: "4.14.1", licence: "MPL-2.0", files: ["axe.min.js", "LICENSE"] }];

const hash = (algorithm, bytes, encoding) => createHash(algorithm).update(bytes).digest(encoding);
const run = (command, args, cwd) => execFileSync(command, args, { cwd, encoding: "utf8" });

// Source maps are not vendored; a pointer to one would be a 404 in every developer console.
const withoutMapPointer = (text) => text.replace(/\n?(\/\/# sourceMappingURL=.*|\/\*# sourceMappingURL=.*\*\/)\s*$/, "\n");

function write(folder, file, bytes) {
  const name = file.split("/").at(-1);
  const text = name.endsWith(".js") || name.endsWith(".css") ? withoutMapPointer(bytes.toString("utf8")) : bytes;
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, name), text);
  return [name, hash("sha256", readFileSync(join(folder, name)), "hex")];
}

function copyPackage({ name, version, licence, files }, root = vendor) {
  const tarball = run("npm", ["pack", "--silent", `${name}@${version}`], work).trim().split("\n").at(-1);
  const integrity = "sha512-" + hash("sha512", readFileSync(join(work, tarball)), "base64");
  const unpacked = join(work, name);
  mkdirSync(unpacked);
  run("tar", ["xzf", join(work, tarball), "-C", unpacked]);
  const folder = join(root, name, version);
  const written = files.map((file) => write(folder, file, readFileSync(join(unpacked, "package", file))));
  return { name, version, licence, integrity, files: Object.fromEntries(written) };
}

function bundleEditor() {
  const build = join(work, "editor");
  cpSync(join(here, "vendor"), build, { recursive: true });
  run("npm", ["ci", "--silent", "--no-audit", "--no-fund"], build);
  run(join(build, "node_modules/.bin/esbuild"), [
    "editor.js", "--bundle", "--minify", "--format=iife", "--global-name=CM", "--legal-comments=none",
    "--target=es2021", "--outfile=codemirror.js", "--log-level=warning",
  ], build);
  const lock = JSON.parse(readFileSync(join(build, "package-lock.json"), "utf8")).packages;
  const parts = Object.entries(lock)
    .filter(([path, part]) => path && !path.includes("esbuild") && part.license === "MIT")
    .map(([path, part]) => [path.replace("node_modules/", ""), part.version]);
  const version = lock["node_modules/@codemirror/view"].version;
  const folder = join(vendor, "codemirror", version);
  const files = [
    write(folder, "codemirror.js", readFileSync(join(build, "codemirror.js"))),
    write(folder, "LICENSE", readFileSync(join(build, "node_modules/@codemirror/view/LICENSE"))),
  ];
  const integrity = lock["node_modules/@codemirror/view"].integrity;
  return { name: "codemirror", version, licence: "MIT", integrity, built_from: Object.fromEntries(parts),
    files: Object.fromEntries(files) };
}

function keep(root, entries) {
  writeFileSync(join(root, "VENDOR.json"), JSON.stringify(entries, null, 2) + "\n");
  for (const { name, version } of entries) console.log(`${name} ${version}`);
}

const forTests = join(here, "..", "tests", "browser", "vendor");
for (const root of [vendor, forTests]) rmSync(root, { recursive: true, force: true });
keep(vendor, [...copied.map((entry) => copyPackage(entry)), bundleEditor()]);
keep(forTests, tested.map((entry) => copyPackage(entry, forTests)));
rmSync(work, { recursive: true });
