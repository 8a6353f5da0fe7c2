"""The front door of Theano-MPI: its rules, its session files, and its contract of models, for networks of torch.

    from paceline.compat.theanompi import BSP

    rule = BSP()
    rule.init(devices=["cuda0", "cuda1"], modelfile="theanompi.models.alex_net", modelclass="AlexNet")
    rule.wait()

Read `rules.py` first, then `worker.py`. Of `compat/` it may import nothing else.
"""

from paceline.compat.theanompi import rules

__all__ = ["BSP", "EASGD", "GOSGD"]

BSP, EASGD, GOSGD = rules.BulkRule, rules.ElasticRule, rules.GossipRule
