import { Button, Group, NumberInput, Select, Stack, Switch, Text, TextInput } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Trans } from "react-i18next";
import { Link } from "react-router";

import { api, body, type Schemas } from "../../../api/client";
import { Failure } from "../../../components/States";
import { t } from "../../../i18n";
import { Command } from "../../../components/Command";

/** A model of the store, where it is to be served, and the command that does the same. */
export function ServeForm({ models, chosen }: { models: Schemas["StoredModel"][] | null; chosen: string | null }) {
  const queries = useQueryClient();
  const [picked, pick] = useState(chosen);
  const [name, setName] = useState("");
  const [port, setPort] = useState<number | string>("");
  const [network, setNetwork] = useState(false);
  const model = picked ?? models?.[0]?.name ?? null;
  const start = useMutation({
    mutationFn: (of: string) =>
      body(api.POST("/api/rewards/endpoints", { body: { model: of, name: name.trim() || null, port: Number(port) || 0, network, device: "auto", dtype: "float32" } })),
    onSuccess: () => queries.invalidateQueries({ queryKey: ["rewards"] }),
  });
  if (models === null)
    return (
      <Text size="sm" className="dim">
        {t("A command is writing to the workspace: which models there are will be shown when it is done.")}
      </Text>
    );
  if (models.length === 0)
    return (
      <Text size="sm">
        <Trans i18nKey="There is no reward model to serve yet. <a>Train one</a>." components={{ a: <Link to="/jobs/new/train" /> }} />
      </Text>
    );
  return (
    <Stack className="panel" gap="xs">
      <Group align="end" gap="sm">
        <Select
          label={t("Serve")}
          data={models.map((one) => one.name)}
          value={model}
          onChange={pick}
          allowDeselect={false}
          searchable
          w={220}
          maw="100%"
        />
        <TextInput label={t("Under the name")} placeholder={model ?? ""} value={name} onChange={(event) => setName(event.currentTarget.value)} w={160} />
        <NumberInput label={t("Port")} placeholder={t("any free one")} value={port} onChange={setPort} min={1} max={65535} allowDecimal={false} hideControls w={120} />
        <Switch
          label={t("Other machines may reach it")}
          checked={network}
          onChange={(event) => setNetwork(event.currentTarget.checked)}
          mb={6}
        />
        <Button onClick={() => model !== null && start.mutate(model)} loading={start.isPending} disabled={model === null}>
          {t("Serve it")}
        </Button>
      </Group>
      {model !== null && <Command line={commandOf(model, name.trim() || model, Number(port) || 0, network)} />}
      {start.error !== null && <Failure error={start.error} />}
    </Stack>
  );
}

function commandOf(model: string, name: string, port: number, network: boolean): string {
  return ["assay serve", quoted(model), "--name", quoted(name), "--port", String(port), ...(network ? ["--host 0.0.0.0"] : [])].join(" ");
}

/** As a shell reads one word. */
function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;
}
