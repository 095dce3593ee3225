"""Kernel scores of cells that were trained without attacks, given counts.

Protocol, written before this study was run. What led to it had been counted once, without interval:
under APGD-CE at 1/255 the parameter count has a Spearman coefficient of about −.04 with the older
table's accuracies, and given eight counts the NTK-score has .21 (clean images), .23 (attacked), .24
(attacked twice). So the study says how sure these are on this table, not that they are new.

1. Cells are those of the recording `space` that have the NTK-score (the kernel's Frobenius norm) of
   all three kernels with every seed. Accuracies are the older table's on CIFAR-10.
2. A kernel's number is the partial Spearman coefficient of its score, mean over the seeds, given the
   eight counts of study `measures` and their squares.
3. Judged is APGD-CE at 1/255 alone: attacked less clean, attacked twice less clean, each with the
   interval over functions from the same resamples, widened to hold every seed's own difference.
4. Such a claim holds if that interval is above 0 and the difference .02 or more; it is false if the
   interval is below .02; else it is open.
5. Clean accuracy and the other attacks at 1/255 are shown, to see if one attack stands alone.
"""
