"""A taskset of verifiers with an environment of its own, which talks back: a number is to be found in three turns."""

from collections.abc import Iterable

import verifiers.v1 as vf

__all__ = ["GuessEnv", "GuessTaskset"]


class GuessData(vf.TaskData):
    number: int


class Guess(vf.Task[GuessData, vf.State, vf.TaskConfig]):
    pass


class GuessTaskset(vf.Taskset[Guess, vf.TasksetConfig]):
    INFINITE = True

    def load(self) -> Iterable[Guess]:
        number = 0
        while True:
            number = number % 9 + 1
            yield Guess(GuessData(prompt="Guess my number.", number=number), self.config.task)


class GuessEnvConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig()


class GuessEnv(vf.Env[GuessEnvConfig]):
    async def run(self, task: Guess, agents: vf.Agents) -> None:
        won, turns = 0.0, 0
        async with agents.player.interaction(task) as interaction:
            segment = await interaction.turn()
            while not segment.terminated:
                turns += 1
                if segment.last_reply == str(task.data.number):
                    won = 1.0
                if won or turns == 3:
                    break
                low = segment.last_reply.isdigit() and int(segment.last_reply) < task.data.number
                segment = await interaction.turn("higher" if low else "lower")
        interaction.trace.record_reward("won", won)
        interaction.trace.record_reward("quick", won / max(turns, 1), 0.5)
