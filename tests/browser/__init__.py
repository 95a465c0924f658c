"""The page in a real Chromium: `make browser` installs what it needs, and runs these tests."""
