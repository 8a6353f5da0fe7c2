"""Elastic averaging SGD lets each worker train weights of its own, tied to a common centre by an elastic force.

    asynchronous (Algorithm 1)
    worker i:  repeat  if tau divides t_i:  x_i <- x_i - alpha (x_i - x~);  x~ <- x~ + alpha (x_i - x~)
                       x_i <- x_i - eta g_i(x_i);  t_i <- t_i + 1
    synchronous (equations 3 and 4, every tau steps)
               x_i <- x_i - alpha (x_i - x~)  for all i;  x~ <- x~ + alpha sum_i (x_i - x~)

x_i, x~: flat float32 weights; x~ is the centre, which is what is evaluated and saved. It lives on the servers, or, in
the synchronous variant, on all workers alike. Both differences are taken from the same pair (x_i, x~), so with equal
rates the forces cancel. The paper has one alpha = beta / p with beta = 0.9 for p workers, the default here; SpeeDO and
Theano-MPI use 0.5. `server_alpha` lets the centre move at a rate of its own. The synchronous variant needs
p alpha <= 1. eta is that of any local optimizer.

Ours: the paper takes the gradient of the step after an exchange where x_i stood before it; here it is taken where
x_i stands after it, as its own synchronous form for tau > 1 does. A worker whose x_i is not finite goes on from x~, and
its optimizer starts anew.

Memory of the local optimizer: kept by default, as in the paper. Asynchronous workers never meet, so `average` needs the
synchronous variant.

Use it asynchronously on uneven workers with a slow link and a model with many optima. Not for few steps: the
centre follows by alpha an exchange. A larger alpha ties closer; a smaller one explores more.
"""

from __future__ import annotations

from paceline.core.local.elastic_averaging import Elastic, ElasticWorker, SynchronousWorker
from paceline.core.scheme import Paper, scheme


@scheme(
    "easgd",
    summary="every worker keeps its own weights, tied elastically to a common centre",
    paper=Paper(
        key="zhang2015deep",
        authors="Zhang, Sixin and Choromanska, Anna and LeCun, Yann",
        title="Deep learning with Elastic Averaging SGD",
        venue="Advances in Neural Information Processing Systems 28",
        year=2015,
        url="https://arxiv.org/abs/1412.6651",
    ),
)
class EASGD(Elastic):
    trains_locally = True

    Worker = ElasticWorker
    Synchronous = SynchronousWorker
