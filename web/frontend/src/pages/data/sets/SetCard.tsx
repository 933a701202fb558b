import { Alert, Button, Code, Group, Text } from "@mantine/core";
import { IconDownload } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { Trans } from "react-i18next";
import { Link } from "react-router";

import { api, body } from "../../../api/client";
import { useAllows } from "../../../api/session";
import { Failure, Waiting } from "../../../components/States";
import { count } from "../../../format/count";
import { t } from "../../../i18n";
import { formPath } from "../../jobs/useJobs";
import { Command } from "../../../components/Command";
import type { TrainingSet } from "./sets";

/** The set that was just made, and whether it can be trained on as it is. */
export function NewSet({ name }: { name: string }) {
  const { data, failureReason } = useQuery({
    queryKey: ["training-sets", "one", name],
    queryFn: () => body(api.GET("/api/training-sets/{name}", { params: { path: { name } } })),
  });
  if (data === undefined) return failureReason === null ? <Waiting what={t("Reading what was made")} /> : <Failure error={failureReason} />;
  return (
    <SetCard set={data.made}>
      {data.stops_training !== null && (
        <Alert color="yellow" py={6} title={t("Not ready for training yet")}>
          {data.stops_training}
        </Alert>
      )}
      {data.stops_training === null && (
        <Text size="sm" className="dim">
          {data.contamination.length === 0 ? t("Contamination is not checked: no benchmark is registered.") : data.contamination.join("; ")}
        </Text>
      )}
    </SetCard>
  );
}

/** One training set: what it holds, the next command, its download. */
export function SetCard({ set, children }: { set: TrainingSet; children?: React.ReactNode }) {
  const curator = useAllows("curate");
  const pools = Object.entries(set.pools).map(([pool, items]) => `${count(items)} ${pool}`);
  return (
    <section className="panel" aria-label={t("Training set {{name}}", { name: set.name })}>
      <Group justify="space-between" gap="xs" mb={4}>
        <Text fw={600} size="sm" style={{ overflowWrap: "anywhere", minWidth: 0 }}>
          {set.name}
        </Text>
        {curator && set.downloadable && (
          <Button
            component="a"
            href={`/api/training-sets/${encodeURIComponent(set.name)}/pairs.jsonl`}
            download
            variant="default"
            size="compact-sm"
            leftSection={<IconDownload size={14} />}
            aria-label={t("Download {{name}} as JSONL", { name: set.name })}
          >{t("Download JSONL")}</Button>
        )}
      </Group>
      <Text size="sm">
        <b>{t("{{count}} pairs", { count: set.pairs })}</b> ({pools.join(", ")}
        {set.ties > 0 && t("; {{ties}} besides, which training leaves out", { ties: t("{{count}} ties", { count: set.ties }) })}),{" "}
        {set.held_out === null ? t("none held out") : <b>{t("{{items}} held out", { items: count(set.held_out.items) })}</b>}
        {set.held_out !== null && t(" as {{held_out}}", { held_out: set.held_out.name })}
      </Text>
      <Text size="xs" className="dim" style={{ overflowWrap: "anywhere" }}>
        <Trans
          i18nKey={"content hash <code>{{content_hash}}</code>"}
          values={{ content_hash: set.content_hash }}
          components={{ code: <Code fz="xs" /> }}
        />
      </Text>
      {children}
      <Group mt={4} gap="xs">
        {curator && (
          <Button component={Link} to={formPath("train", { method: "bt", data: set.name, eval_data: set.held_out?.name ?? null })} size="compact-sm" variant="light">
            {t("Train on it")}
          </Button>
        )}
        <Command line={set.command} />
      </Group>
      {curator && !set.downloadable && (
        <Text size="xs" className="dim">
          <Trans
            i18nKey={"Too large to be downloaded from here: <code>{{snapshot}}</code>"}
            values={{ snapshot: `assay data export ${set.name}.jsonl --snapshot ${set.name}` }}
            components={{ code: <Code fz="xs" /> }}
          />
        </Text>
      )}
    </section>
  );
}
