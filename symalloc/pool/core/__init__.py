"""The pool itself: options, the reference that decides, the native core that decides alike."""
