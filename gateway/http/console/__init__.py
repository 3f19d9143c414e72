"""The console: pages for people, made on the server.

`pages.py` shows, `actions.py` changes, `render.py` makes HTML and keeps the forms safe,
`messages.py` reads records, `history.py` remembers a few minutes. Everything can be read
without JavaScript; `static/live.js` only brings the parts of a page that are marked
`data-live` up to date. Nothing is loaded from elsewhere.
"""
