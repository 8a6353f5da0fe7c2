"""The catalogue. Importing this package enters every scheme into the registry: one file, one paper."""

import importlib
import pkgutil

for _file in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_file.name}")
