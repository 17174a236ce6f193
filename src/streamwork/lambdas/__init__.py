"""Lambda: one definition, two jobs over the same events, one view.

    spending = Lambda("card-spending", events=purchases, key="card", to=Spending, count=count(), total=sum_of("amount"))
    job = spending.stream()     # streamwork run job.py: quick, and mostly accurate
                                # streamwork lambda run job.py: exact, from scratch, as often as you like
    open_view(spending, root).get("card-00017")   # batch up to the seam, the streaming job behind it

`definition` makes the jobs, `partials` keeps what the streaming job counts apart from checkpoint to checkpoint, `seams` are the
files that say how far a batch run counts and which one is shown, `batch_run` computes one, `view` answers.
"""

from streamwork.lambdas.batch_run import BatchRun, run_batch
from streamwork.lambdas.definition import Lambda, lambda_of
from streamwork.lambdas.view import MergedAnswer, Stand, View, open_view

__all__ = ["BatchRun", "Lambda", "MergedAnswer", "Stand", "View", "lambda_of", "open_view", "run_batch"]
