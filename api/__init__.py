"""The HTTP door: the wire contract over REST, and the app that serves it with the pages."""
