"""Tables and figures made of runs: one module a study, each a frame, a figure of it and a caption.

`refusal_index.plugins.studies.study` lists them by name and writes one to files.
"""
