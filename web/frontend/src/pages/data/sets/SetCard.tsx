import { Alert, Button, Code, Group, Text } from "@mantine/core";
import { IconDownload } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";

import { api, body } from "../../../api/client";
import { useAllows } from "../../../api/session";
import { Failure, Waiting } from "../../../components/States";
import { count, counted } from "../../../format/count";
import { Command } from "../../runs/Command";
import type { TrainingSet } from "./sets";

/** The set that was just made, and whether it can be trained on as it is. */
export function NewSet({ name }: { name: string }) {
  const { data, failureReason } = useQuery({
    queryKey: ["training-sets", "one", name],
    queryFn: () => body(api.GET("/api/training-sets/{name}", { params: { path: { name } } })),
  });
  if (data === undefined) return failureReason === null ? <Waiting what="Reading what was made" /> : <Failure error={failureReason} />;
  return (
    <SetCard set={data.made}>
      {data.stops_training !== null && (
        <Alert color="yellow" py={6} title="Not ready for training yet">
          {data.stops_training}
        </Alert>
      )}
      {data.stops_training === null && (
        <Text size="sm" className="dim">
          {data.contamination.length === 0 ? "Contamination is not checked: no benchmark is registered." : data.contamination.join("; ")}
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
    <section className="panel" aria-label={`Training set ${set.name}`}>
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
            aria-label={`Download ${set.name} as JSONL`}
          >
            Download JSONL
          </Button>
        )}
      </Group>
      <Text size="sm">
        <b>{counted(set.pairs, "pair")}</b> ({pools.join(", ")}
        {set.ties > 0 && `; ${counted(set.ties, "tie")} besides, which training leaves out`}),{" "}
        {set.held_out === null ? "none held out" : <b>{count(set.held_out.items)} held out</b>}
        {set.held_out !== null && ` as ${set.held_out.name}`}
      </Text>
      <Text size="xs" className="dim" style={{ overflowWrap: "anywhere" }}>
        content hash <Code fz="xs">{set.content_hash}</Code>
      </Text>
      {children}
      <Group mt={4}>
        <Command line={set.command} />
      </Group>
      {curator && !set.downloadable && (
        <Text size="xs" className="dim">
          Too large to be downloaded from here: <Code fz="xs">{`assay data export ${set.name}.jsonl --snapshot ${set.name}`}</Code>
        </Text>
      )}
    </section>
  );
}
