"""Tables and figures made of runs: one module a study, each a frame, a figure of it and a caption.

`refusal_index.studies.study` knows them all by name; `refusal_index.studies.study` writes one to files.
"""
