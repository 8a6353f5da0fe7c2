# Quantization-aware training: observers change their buffers while the model trains (torch.ao.quantization).
from __future__ import annotations

import warnings

import torch
import torch.ao.quantization as quantization
from _case import SCHEME, mini_batches, report, small_net
from torch import nn

import paceline

warnings.simplefilter("ignore")  # torch.ao.quantization is deprecated, and in use
model = nn.Sequential(quantization.QuantStub(), *small_net(), quantization.DeQuantStub())
model.qconfig = quantization.get_default_qat_qconfig("fbgemm")
model = quantization.prepare_qat(model.train())
pace = paceline.join(model, torch.optim.SGD(model.parameters(), 0.1), scheme=SCHEME)
for x, y in zip(*mini_batches(6), strict=True):
    nn.functional.cross_entropy(model(x[pace.rank]), y[pace.rank]).backward()
    pace.step(8)
pace.close()
whole = quantization.convert(model.eval())
report(end=True, finite=bool(whole(torch.randn(2, 4)).isfinite().all()))
