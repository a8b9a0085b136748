"""Readers: run folders and other tools' files -> samples.

`read_samples` finds out what a file is by its content; `read_runs` gives a run folder's
own tables; each format has its module, with its schema.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
