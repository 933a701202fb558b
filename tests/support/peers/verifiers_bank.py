"""A taskset of verifiers whose agent has tools: a balance is to be looked up."""

from collections.abc import Iterable

import verifiers.v1 as vf

__all__ = ["BankTaskset"]

BALANCES = {"ana": 42, "ben": 7}


class BankTools(vf.Toolset[vf.ToolsetConfig, vf.State]):
    @vf.tool
    async def balance(self, name: str) -> str:
        """The balance of a person."""
        if name not in BALANCES:
            raise ValueError(f"there is no {name}")
        return str(BALANCES[name])


class BankData(vf.TaskData):
    answer: str


class Bank(vf.Task[BankData, vf.State, vf.TaskConfig]):
    @classmethod
    def toolsets(cls, config: vf.TaskConfig) -> list[vf.Toolset]:
        return [BankTools(vf.ToolsetConfig())]

    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        return float((trace.last_reply or "").strip() == self.data.answer)

    @vf.reward(weight=0.1)
    async def looked(self, trace: vf.Trace) -> float:
        return float(any(isinstance(node.message, vf.ToolMessage) for node in trace.nodes))


class BankTaskset(vf.Taskset[Bank, vf.TasksetConfig]):
    def load(self) -> Iterable[Bank]:
        for name, balance in BALANCES.items():
            data = BankData(prompt=f"The balance of {name}?", answer=str(balance))
            yield Bank(data, self.config.task)


if __name__ == "__main__":
    BankTools.run()
