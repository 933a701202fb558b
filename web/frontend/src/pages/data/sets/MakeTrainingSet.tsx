import { Alert, Anchor, Button, Group, MultiSelect, NumberInput, Stack, Text, TextInput } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState, type FormEvent } from "react";
import { Link } from "react-router";

import { api, body } from "../../../api/client";
import { poolChoices } from "../../../components/PoolBadge";
import { Failure } from "../../../components/States";
import { t } from "../../../i18n";
import { goesOn } from "../../jobs/useJobs";
import { POOLS, useMaking } from "./sets";
import { NewSet } from "./SetCard";

const SHARE = 10; // percent held out at first

/**
 * Labelled comparisons fixed under a name, for training. It is made by a process of its own, which goes on when the page
 * is left. `sources`: those to choose from; none, and there is no choice.
 */
export function MakeTrainingSet({ name: first = "", pools: some = [], sources }: { name?: string; pools?: string[]; sources?: string[] }) {
  const queries = useQueryClient();
  const [name, setName] = useState(first);
  const [share, setShare] = useState<number | string>(SHARE);
  const [pools, setPools] = useState(some);
  const [from, setFrom] = useState<string[]>([]);
  const start = useMutation({
    mutationFn: () =>
      body(
        api.POST("/api/jobs", {
          body: { kind: "snapshot", settings: { name: name.trim(), pool: pools, source: from, holdout: Number(share) > 0 ? Number(share) / 100 : null } },
        }),
      ),
  });
  const making = useMaking(start.data?.id ?? null);
  const job = making.data ?? start.data;
  const going = start.isPending || (job !== undefined && goesOn(job));
  const created = job?.status === "done" && typeof job.settings.name === "string" ? job.settings.name : null;
  useEffect(() => {
    if (created !== null) void queries.invalidateQueries({ queryKey: ["training-sets"], refetchType: "active", predicate: ({ queryKey }) => queryKey[1] !== "making" });
  }, [created, queries]);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (!going) start.mutate();
  };
  return (
    <Stack gap="xs">
      <form onSubmit={submit} aria-label={t("Make a training set")}>
        <Group gap="sm" align="end">
          <TextInput
            label={t("Name")}
            required
            w={170}
            pattern="[A-Za-z0-9][A-Za-z0-9_.+\-]{0,90}"
            title={t("Letters and digits; after the first also . _ + -")}
            value={name}
            onChange={(event) => setName(event.currentTarget.value)}
          />
          <NumberInput label={t("Held out, % of the prompts")} w={170} min={0} max={90} decimalScale={2} value={share} onChange={setShare} />
          <MultiSelect label={t("Pools")} w={230} data={poolChoices(POOLS)} value={pools} onChange={setPools} placeholder={pools.length === 0 ? t("all with a label") : ""} />
          {sources !== undefined && sources.length > 0 && (
            <MultiSelect label={t("Sources")} w={230} data={sources} value={from} onChange={setFrom} placeholder={from.length === 0 ? t("all") : ""} />
          )}
          <Button type="submit" variant="light" loading={going} disabled={name.trim() === ""}>
            {t("Make a training set")}
          </Button>
        </Group>
      </form>
      {going && (
        <Text size="sm" className="dim" role="status">
          {t("Being made. With a million comparisons this takes a minute; it goes on when you leave this page.")}
        </Text>
      )}
      {start.error !== null && <Failure error={start.error} />}
      {job !== undefined && !going && created === null && (
        <Alert color="red" role="alert" title={t("It was not made")}>
          {job.why ?? job.status}.{" "}
          <Anchor component={Link} to={`/jobs/${job.id}`} size="sm">{t("What the command said")}</Anchor>
        </Alert>
      )}
      {created !== null && !going && <NewSet name={created} />}
    </Stack>
  );
}
