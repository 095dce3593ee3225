"""The library's calls: score, rank, correlate, look up."""

from ntkscore.api.accuracies import correlate as correlate
from ntkscore.api.accuracies import lookup as lookup
from ntkscore.api.runs import open_results as open_results
from ntkscore.api.runs import rank as rank
from ntkscore.api.runs import ranked as ranked
from ntkscore.api.runs import score_sum_of as score_sum_of
from ntkscore.api.runs import space_in as space_in
from ntkscore.api.scoring import score as score
from ntkscore.api.scoring import score_network as score_network
