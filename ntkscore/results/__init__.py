"""Rows on disk: a directory that survives whatever ends the run."""

from ntkscore.results.result_set import RUN as RUN
from ntkscore.results.result_set import ResultSet as ResultSet
from ntkscore.results.result_set import provenance as provenance
