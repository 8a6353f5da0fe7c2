"""The messages of the control plane; `paceline.core.coordination.control_messages` defines them.

They are defined there because the coordinator's parts make them, and the simulator runs these parts without sockets.
"""

from paceline.core.coordination.control_messages import *  # noqa: F403  all of them, under the address that live/ uses
