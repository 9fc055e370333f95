"""Studies: tables and figures of runs, each with a data frame, a figure and a caption.

`refusal_index.plugins.studies.study` lists studies by name and writes them to files.
"""
