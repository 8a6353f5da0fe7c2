"""Gluon's parameters, its Trainer, and two layers."""

from __future__ import annotations

from mxnet.gluon import nn, utils
from mxnet.gluon.nn import Block
from mxnet.gluon.parameter import Parameter, ParameterDict
from mxnet.gluon.trainer import Trainer

__all__ = ["Block", "Parameter", "ParameterDict", "Trainer", "nn", "utils"]
