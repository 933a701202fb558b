import { Anchor, Badge, Button, Code, Collapse, Group, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { IconPlayerPause, IconPlayerPlay } from "@tabler/icons-react";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useId } from "react";
import { Link } from "react-router";

import { api, body } from "../../../api/client";
import { Failure } from "../../../components/States";
import { duration } from "../../../format/duration";
import { momentInWords } from "../../../format/moment";
import { t } from "../../../i18n";
import { Clip } from "../shared/Clip";
import { StageProgress, StageSpent } from "./StageProgress";
import { goesOn, TITLES, type Settings, type Stage } from "./useStages";

const COLOURS: Record<Stage["status"], string> = {
  starting: "blue",
  running: "blue",
  pausing: "yellow",
  done: "teal",
  waiting: "yellow",
  paused: "gray",
  failed: "red",
};

/** One stage: what it is, how it stands, its last lines; pausing it, or going on with it. */
export function StageCard({
  stage,
  allowed,
  free,
  now,
  later = false,
  onAgain,
}: {
  stage: Stage;
  allowed: boolean;
  free: boolean;
  now: number;
  /** The same settings were started again since. */
  later?: boolean;
  onAgain: (settings: Settings) => void;
}) {
  const going = goesOn(stage);
  const [opened, { toggle }] = useDisclosure(going);
  const id = useId();
  const queries = useQueryClient();
  const pause = useMutation({
    mutationFn: () => body(api.POST("/api/curate/stages/{stage_id}/pause", { params: { path: { stage_id: stage.id } } })),
    onSettled: () => queries.invalidateQueries({ queryKey: ["curate", "stages"] }),
  });
  const goOn = !later && (stage.status === "paused" || stage.status === "waiting" || stage.status === "failed");
  return (
    <section className="panel" aria-label={`${t(TITLES[stage.settings.stage])}, ${stage.status}`}>
      <Group justify="space-between" gap="xs">
        <Group gap="xs">
          <Text size="sm" fw={600}>
            {t(TITLES[stage.settings.stage])}
          </Text>
          <Badge size="sm" variant="light" radius="sm" color={COLOURS[stage.status]}>
            {stage.status}
          </Badge>
          <Text size="xs" className="dim">
            {stage.by}, {momentInWords(stage.started)}
            {stage.ended !== null && `, ${duration(stage.ended - stage.started)}`}
            {going && t(", for {{max}}", { max: duration(Math.max(0, now - stage.started)) })}
          </Text>
          {stage.run_id !== null && (
            <Anchor component={Link} to={`/runs/${stage.run_id}`} size="xs">{t("its run")}</Anchor>
          )}
        </Group>
        <Group gap="xs">
          {stage.output.trim() !== "" && (
            <Button variant="subtle" color="gray" onClick={toggle} aria-expanded={opened} aria-controls={id}>
              {opened ? t("Hide the output") : t("Output")}
            </Button>
          )}
          {allowed && going && (
            <Button
              variant="light"
              color="yellow"
              leftSection={<IconPlayerPause size={14} />}
              loading={pause.isPending}
              disabled={stage.status === "pausing"}
              onClick={() => pause.mutate()}
            >{t("Pause")}</Button>
          )}
          {allowed && !going && (
            <Button
              variant={goOn ? "light" : "subtle"}
              leftSection={<IconPlayerPlay size={14} />}
              disabled={!free}
              onClick={() => onAgain(stage.settings)}
            >
              {goOn ? t("Resume") : t("Run again")}
            </Button>
          )}
        </Group>
      </Group>
      <Code fz="xs" style={{ overflowWrap: "anywhere", whiteSpace: "normal" }}>
        {stage.command}
      </Code>
      {stage.why !== null && (
        <Text size="sm" mt={4}>
          {stage.why}
          {later && stage.status !== "done" && t("; it went on later")}
          {!later && stage.status === "waiting" && stage.why.startsWith(t("waiting for people")) && (
            <>
              {". "}
              <Anchor component={Link} to="/annotate" size="sm">{t("Annotate")}</Anchor>
            </>
          )}
        </Text>
      )}
      {stage.status !== "done" && <StageProgress counts={stage.progress} going={going} now={now} />}
      <StageSpent spent={stage.spent} expected={stage.expected} />
      {pause.error !== null && <Failure error={pause.error} />}
      <Collapse expanded={opened} id={id}>
        {opened && stage.output.trim() !== "" && (
          <Clip className="curate-output" label={t("Output of {{titles}}", { titles: t(TITLES[stage.settings.stage]) })}>
            {stage.output.trim()}
          </Clip>
        )}
      </Collapse>
    </section>
  );
}
