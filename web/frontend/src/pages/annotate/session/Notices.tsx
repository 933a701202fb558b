import { Alert, Button, Group, Text } from "@mantine/core";
import { IconClockPause, IconHandStop, IconPencil } from "@tabler/icons-react";

import type { Schemas } from "../../../api/client";
import type { Problem } from "../../../api/problems";
import { t } from "../../../i18n";
import type { RefusedVote } from "./outbox";
import { answerInWords, saidInWords, useWords } from "../words";

/** A vote that is not acknowledged yet: what keeps it, and that nothing is lost. */
export function Unsent({ trouble, forgetful }: { trouble: Problem; forgetful: boolean }) {
  return (
    <Alert color="yellow" icon={<IconClockPause size={18} />} title={t("Not stored yet; it is being sent again")} role="status" p="xs">
      <Text size="sm" className="sentence">
        {trouble.message}.{" "}
        {forgetful
          ? t("This browser stores nothing: leave the page open until the vote is stored.")
          : t("Your vote is kept in this browser, also if you load the page again.")}
      </Text>
    </Alert>
  );
}

/** An earlier answer of one's own is open again: what it says, and that it stands until there is another. */
export function Previous({ answer, onLeave }: { answer: Schemas["OwnAnswerReply"]; onLeave: () => void }) {
  const words = useWords();
  return (
    <Alert color="blue" icon={<IconPencil size={18} />} title={t("You have answered this item")} role="status" p="xs">
      <Group gap="xs">
        <Text size="sm" style={{ flex: 1, minWidth: 180, overflowWrap: "anywhere" }}>
          {answerInWords(words, answer)}. {t("This stands until you answer anew.")}
        </Text>
        <Button variant="light" color="blue" onClick={onLeave}>
          {t("Leave it as it is")}
        </Button>
      </Group>
    </Alert>
  );
}

/** A vote that the server will not take, with everything that was written for it. */
export function Refused({ vote, onDismiss }: { vote: RefusedVote; onDismiss: () => void }) {
  const { choice, skip, strength, rationale } = vote.body;
  const words = useWords();
  return (
    <Alert color="red" icon={<IconHandStop size={18} />} title={t("One of your votes was not taken")} role="alert" p="xs">
      <Text size="sm">
        {vote.detail} ({vote.queue}, {new Date(vote.at).toLocaleTimeString()}:{" "}
        {saidInWords(words, choice ?? (skip ? "skip" : "tie"), strength)})
      </Text>
      {rationale !== "" && rationale !== undefined && (
        <Text size="sm" component="blockquote" dir="auto" m={0} mt={4} style={{ whiteSpace: "pre-wrap", overflowWrap: "anywhere" }}>
          {rationale}
        </Text>
      )}
      <Group gap="xs" mt={6}>
        {rationale !== "" && rationale !== undefined && (
          <Button variant="light" color="red" onClick={() => void navigator.clipboard.writeText(rationale)}>
            {t("Copy the rationale")}
          </Button>
        )}
        <Button variant="light" color="gray" onClick={onDismiss}>
          {t("Dismiss")}
        </Button>
      </Group>
    </Alert>
  );
}
