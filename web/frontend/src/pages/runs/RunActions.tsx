import { Anchor, Button, Group, Menu, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { IconArchive, IconArchiveOff, IconDots, IconServer, IconTrash } from "@tabler/icons-react";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "react-router";

import { api, body, type Schemas } from "../../api/client";
import { useAllows } from "../../api/session";
import { AskFirst } from "../../components/AskFirst";
import { Failure, Waiting } from "../../components/States";
import { t } from "../../i18n";
import { goesOn } from "./format";
import { useNoteChange } from "./NoteRuns";
import { StopRun } from "./StopRun";

type Detail = Schemas["RunDetail"];

/** What can be done with a run: serve what it made, stop it, take it out of the list, remove its files. */
export function RunActions({ detail }: { detail: Detail }) {
  const allowed = useAllows("curate");
  const { run, models } = detail;
  const archive = useNoteChange();
  const [asked, { open, close }] = useDisclosure();
  return (
    <Group gap="xs">
      {models.map((name) => (
        <Button key={name} variant="light" component={Link} to={`/rewards/served?model=${encodeURIComponent(name)}`} leftSection={<IconServer size={14} />}>
          {models.length === 1 ? t("Serve this") : t("Serve {{name}}", { name })}
        </Button>
      ))}
      <StopRun detail={detail} />
      {allowed && !goesOn(run.status) && (
        <Menu position="bottom-end" withinPortal>
          <Menu.Target>
            <Button variant="default" aria-label={t("More")} px={8}>
              <IconDots size={16} />
            </Button>
          </Menu.Target>
          <Menu.Dropdown>
            <Menu.Item leftSection={run.archived ? <IconArchiveOff size={14} /> : <IconArchive size={14} />} onClick={() => archive.mutate({ runs: [run.id], archived: !run.archived })}>
              {run.archived ? t("Put back into the list") : t("Archive")}
            </Menu.Item>
            {run.removed === null && (
              <Menu.Item color="red" leftSection={<IconTrash size={14} />} onClick={open}>
                {t("Remove its files")}
              </Menu.Item>
            )}
          </Menu.Dropdown>
        </Menu>
      )}
      {archive.error !== null && <Failure error={archive.error} />}
      {asked && <RemoveRun run={run.id} onClose={close} />}
    </Group>
  );
}

/** Asks after it has said what would go, what stays, and who needs it. */
function RemoveRun({ run, onClose }: { run: string; onClose: () => void }) {
  const queries = useQueryClient();
  const { data, error } = useQuery({ queryKey: ["run", run, "removal"], queryFn: () => body(api.GET("/api/runs/{run_id}/removal", { params: { path: { run_id: run } } })), gcTime: 0 });
  const remove = useMutation({
    mutationFn: () => body(api.DELETE("/api/runs/{run_id}", { params: { path: { run_id: run } } })),
    onSuccess: async () => {
      onClose();
      await Promise.all([queries.invalidateQueries({ queryKey: ["run", run] }), queries.invalidateQueries({ queryKey: ["runs"] })]);
    },
  });
  const needed = data !== undefined && data.dependents.length > 0;
  return (
    <AskFirst
      opened
      title={needed ? t("Other runs need it") : t("Remove the files of this run?")}
      act={t("Remove its files")}
      keep={needed ? t("Close") : t("Keep them")}
      pending={remove.isPending || data === undefined}
      error={remove.error ?? error}
      onAct={() => remove.mutate()}
      onClose={onClose}
      {...(needed ? { refused: true } : {})}
    >
      {data === undefined ? (
        error === null && <Waiting />
      ) : needed ? (
        <>
          {t("These runs read it, so its files stay. It can be archived.")}
          {data.dependents.slice(0, 8).map((one) => (
            <Text key={one} size="sm">
              <Anchor component={Link} to={`/runs/${one.split(" ")[0]}`} size="sm" ff="monospace">
                {one}
              </Anchor>
            </Text>
          ))}
        </>
      ) : (
        <>
          {t("{{size}} MB of logs, curves, samples and checkpoints are removed for good. Its settings, figures, notes and lineage stay, and the run is archived.", { size: (data.bytes / 1e6).toFixed(1) })}{" "}
          {data.models.length > 0 && t("The models that it made stay: {{names}}.", { names: data.models.join(", ") })}
        </>
      )}
    </AskFirst>
  );
}

/** Where other programs have the run. */
export function TrackedRuns({ trackers }: { trackers: Detail["trackers"] }) {
  return (
    <Group gap="4px 16px">
      {trackers.map(({ tracker, ref, url, store }) => (
        <Text key={`${tracker} ${ref}`} size="sm">
          {url !== null && /^https?:\/\//.test(url) ? (
            <Anchor href={url} target="_blank" rel="noreferrer" size="sm">
              {t("The run in {{tracker}}", { tracker })}
            </Anchor>
          ) : (
            <span title={store}>{t("In {{tracker}} as {{ref}}", { tracker, ref })}</span>
          )}
        </Text>
      ))}
    </Group>
  );
}
