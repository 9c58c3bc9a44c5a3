"""What the web pages and the runner share: values and pure functions, without torch, Django or I/O."""
