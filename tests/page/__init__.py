"""Tests of the page, some of them in a browser. `python -m tests.page.pictures` draws the docs' pictures."""
