"""Pictures are not written: the runs are judged by their losses."""


def save_image(*args, **settings):
    """Does nothing."""
