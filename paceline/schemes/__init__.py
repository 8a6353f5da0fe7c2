"""The catalogue of schemes has one file for each paper. Importing it enters every scheme into the registry.

Read `bsp.py` first, then `esync.py`. May import `core/` alone.
"""

import importlib
import pkgutil

for _file in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_file.name}")
