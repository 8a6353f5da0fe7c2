"""The systems that Paceline is compared with, each in an environment of its own. No dependency of the product."""
