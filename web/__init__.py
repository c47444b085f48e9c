"""The browser's door: pages rendered on the server that work without JavaScript."""
