"""Building a PreciseWikiQA set: short factual questions that models write about sections of Wikipedia.

Pages are cut into sections, and sections are sampled with a seed. One model writes a question about each section,
another answers it; questions that pass the checks are saved to a file, with a record of the build. The design is that
of PreciseWikiQA in HalluLens; the wording of the prompts is this project's own.
"""
