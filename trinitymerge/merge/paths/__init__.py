"""The ways a merge can read its target, one class each (S31).

A new one is a module here and an entry in both lists at the top of ``choice.py``: what it costs, and when it is judged.
"""
