import { ActionIcon, Anchor, Badge, Group, Progress, Text, Title, Tooltip } from "@mantine/core";
import { IconArrowBackUp, IconFileDiff, IconFlag, IconHistory, IconKeyboard, IconLayoutSidebarRight, IconLink, IconLogout2, IconMarkdownOff, type Icon } from "@tabler/icons-react";
import { Link } from "react-router";

import type { Schemas } from "../../../api/client";
import { TextMenu } from "../../../components/TextMenu";
import { t } from "../../../i18n";
import { PAIR, SESSION, type Action } from "../keys/actions";
import { useKeymap } from "../keys/keymap";
import { Streak } from "./OwnFigures";
import type { Look } from "./ResponsePair";
import { Timer } from "./Timer";
import { shareInWords } from "../words";

interface SessionHeaderProps {
  queue: string;
  /** Its name as people see it. */
  title: string;
  person: string;
  progress: Schemas["AnnotationProgress"] | undefined;
  seconds: () => number;
  look: Look;
  canUndo: boolean;
  /** Whether the panel beside the texts is shown. */
  panel: boolean;
  press: (action: Action) => void;
}

/** Where one is: queue, progress, time; and what is not a decision. */
export function SessionHeader({ queue, title, person, progress, seconds, look, canUndo, panel, press }: SessionHeaderProps) {
  const keymap = useKeymap();
  const tool = (action: Action, label: string, Drawn: Icon, pressed?: boolean, disabled = false) => (
    <Tooltip label={`${label} (${keymap.label(action)})`}>
      <ActionIcon
        variant={pressed ? "light" : "subtle"}
        color={pressed ? "teal" : "gray"}
        aria-label={label}
        aria-pressed={pressed}
        aria-keyshortcuts={keymap.label(action)}
        data-disabled={disabled || undefined}
        aria-disabled={disabled}
        onClick={() => press(action)}
      >
        <Drawn size={18} stroke={1.6} />
      </ActionIcon>
    </Tooltip>
  );
  return (
    <div>
      <Group justify="space-between" gap={4}>
        <Title order={1} style={{ minWidth: 0, overflowWrap: "anywhere" }}>
          <Anchor component={Link} to="/annotate" inherit c="inherit" underline="never" className="dim">
            {t("Annotate")}
          </Anchor>{" "}
          / <bdi>{title}</bdi>
        </Title>
        <Group gap={2} wrap="nowrap">
          {tool(SESSION.undo, t("Undo the last vote"), IconArrowBackUp, undefined, !canUndo)}
          {tool(PAIR.diff, t("Words that differ"), IconFileDiff, look === "diff")}
          {tool(SESSION.plain, t("Texts as they are written"), IconMarkdownOff, look === "plain")}
          <TextMenu />
          {tool(SESSION.panel, t("Panel with the guideline"), IconLayoutSidebarRight, panel)}
          {tool(SESSION.flag, t("Tell the curators about this item"), IconFlag)}
          {tool(SESSION.link, t("Copy the link to this item"), IconLink)}
          {tool(SESSION.answers, t("Your answers"), IconHistory)}
          {tool(SESSION.help, t("Keyboard"), IconKeyboard)}
          {tool(SESSION.leave, t("Leave"), IconLogout2)}
        </Group>
      </Group>
      <Group gap="sm" mb="xs">
        {progress !== undefined && <HowFar progress={progress} />}
        <Timer seconds={seconds} />
        {progress?.waiting === null && <Streak queue={queue} person={person} seen={progress.mine + progress.passed} />}
      </Group>
    </div>
  );
}

/** Of what the queue asks of this person; for an adjudicator, of what has no majority and waits for them. */
function HowFar({ progress }: { progress: Schemas["AnnotationProgress"] }) {
  const { share, mine, passed, waiting, answered, expected, qualifying } = progress;
  if (waiting !== null) {
    return (
      <>
        <Badge variant="light" color="violet">
          {t("adjudication")}
        </Badge>
        <Text size="sm" className="dim">
          {waiting === 0 ? t("nothing waits") : t("{{count}} items without a majority", { count: waiting })}, {t("{{count}} decided by you", { count: mine })}
        </Text>
      </>
    );
  }
  const figures = { answered, expected: expected ?? answered };
  return (
    <>
      <Group gap={6} wrap="nowrap">
        <Progress w={90} value={expected === null || expected === 0 ? 100 * share : (100 * answered) / expected} aria-label={t("Your part")} />
        <Text size="sm">{qualifying ? t("{{answered}} of {{expected}} of the qualification", figures) : t("{{answered}} of {{expected}}", figures)}</Text>
      </Group>
      {passed > 0 && (
        <Text size="sm" className="dim">
          {t("{{count}} passed on", { count: passed })}
        </Text>
      )}
      {!qualifying && (
        <Text size="sm" className="dim">
          {t("queue {{done}}", { done: shareInWords(share) })}
        </Text>
      )}
    </>
  );
}
