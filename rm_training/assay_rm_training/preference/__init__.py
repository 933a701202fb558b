"""Policies trained offline on preferences: DPO and its relatives, KTO, supervised fine-tuning."""
