"""The catalogue. Importing this package enters every scheme into the registry."""

from paceline.schemes.asp import ASP
from paceline.schemes.bsp import BSP
from paceline.schemes.esync import ESync
from paceline.schemes.gsp import GSP
from paceline.schemes.ssp import SSP

__all__ = ["ASP", "BSP", "GSP", "SSP", "ESync"]
