# %% [markdown]
# # Train a reward model on a snapshot
#
# Bradley-Terry on the pairs that `curate_preferences.py` made, against two baselines on pairs that it has not seen:
# always the longer response, and chance. Serve it with `assay serve helpful`.

from assay.statistics.intervals import interval_text
from assay_rm_training.evaluation.pairs import PairEvaluation
from assay_rm_training.methods.bradley_terry import BradleyTerry
from assay_rm_training.objectives.objective import Objective
from assay_rm_training.trainer import RewardModelTrainer

# %% Settings
BASE = "smollm2"  # embedded; "tiny", a folder, a hub id, or a reward model of the workspace
WORKSPACE = "mine"  # see curate_preferences.py
DATA = "mine"  # a snapshot, or a file of pairs, or a list of {"prompt", "chosen", "rejected"}

# %% The method is an object, or a name: RewardModelTrainer("bt", ...).
trainer = RewardModelTrainer(
    BradleyTerry(loss=Objective(centring=0.01)),
    data=DATA,
    eval_data=f"{DATA}-holdout",
    base=BASE,
    workspace=WORKSPACE,
    name="helpful",
    batch_size=8,
    max_length=512,
)
trained = trainer.train()
print(f"trained {trained.name} in run {trained.run_id}: {trained.path}")

# %% What it is worth
evaluation = trained.evaluation
assert isinstance(evaluation, PairEvaluation)
print(f"accuracy {evaluation.accuracy.value:.3f} [{interval_text(evaluation.accuracy.interval, '.3f')}]")
print(f"the longer response {evaluation.length_baseline:.3f}, chance 0.500")
