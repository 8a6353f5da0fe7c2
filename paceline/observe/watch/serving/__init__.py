"""This folder is who is told: browsers over HTTP, and the command of an alert.

Read `app.py` first (what may be asked for, and by whom), then `server.py`. Of `observe/` it may import `export/`,
`watch/` and `watch/panels/`.
"""
