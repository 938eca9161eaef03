"""The ways a merge can read its target, one class each (S31).

A new one is a module here and an entry in :data:`trinitymerge.merge.paths.choice.PATHS`.
"""
