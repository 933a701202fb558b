import { Button, Group, Select, Stack, Table, Text, TextInput } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { api, body, type Schemas } from "../../../api/client";
import { useAllows } from "../../../api/session";
import { AskFirst } from "../../../components/AskFirst";
import { SecretDialog } from "../../../components/SecretDialog";
import { Failure, Waiting } from "../../../components/States";
import { Wide } from "../../../components/Wide";
import { moment } from "../../../format/moment";
import { t } from "../../../i18n";

type Scope = Schemas["NewServingKey"]["scope"];

/** Keys that trainers and others send to the served models: made and shown once, listed, revoked. */
export function ServingKeys() {
  const queries = useQueryClient();
  const [leaving, leave] = useState<string | null>(null);
  const { data, failureReason: error } = useQuery({ queryKey: ["rewards", "keys"], queryFn: () => body(api.GET("/api/rewards/keys")) });
  const revoke = useMutation({
    mutationFn: (name: string) => api.DELETE("/api/rewards/keys/{name}", { params: { path: { name } } }),
    onSuccess: () => leave(null),
    onSettled: () => queries.invalidateQueries({ queryKey: ["rewards", "keys"] }),
  });
  if (data === undefined) return error === null ? <Waiting /> : <Failure error={error} />;
  return (
    <Stack gap="sm">
      <NewKey />
      {data.keys.length > 0 && (
        <Wide label={t("Keys")}>
          <Table className="panel" miw={560}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>{t("Of")}</Table.Th>
                <Table.Th>{t("May")}</Table.Th>
                <Table.Th>{t("Made")}</Table.Th>
                <Table.Th>{t("Until")}</Table.Th>
                <Table.Th w={90} aria-label={t("Actions")} />
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {data.keys.map((key) => (
                <Table.Tr key={key.id}>
                  <Table.Td>{key.name}</Table.Td>
                  <Table.Td>
                    {key.scopes.map((scope) => scopeInWords(scope as Scope)).join(", ")}
                    {key.models !== null && ` (${key.models.join(", ")})`}
                  </Table.Td>
                  <Table.Td>{moment(key.created)}</Table.Td>
                  <Table.Td>{key.expires === null ? t("until it is revoked") : moment(key.expires)}</Table.Td>
                  <Table.Td>
                    <Button
                      variant="subtle"
                      color="gray"
                      size="compact-xs"
                      onClick={() => leave(key.name)}
                      aria-label={t("Revoke the key of {{name}}", { name: key.name })}
                    >
                      {t("Revoke")}
                    </Button>
                  </Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Wide>
      )}
      <AskFirst
        opened={leaving !== null}
        onClose={() => leave(null)}
        title={t("Revoke the key of {{name}}?", { name: leaving ?? "" })}
        act={t("Revoke")}
        keep={t("Keep it")}
        pending={revoke.isPending}
        error={revoke.error}
        onAct={() => leaving !== null && revoke.mutate(leaving)}
      >
        {t("Within a second every served model refuses it. It cannot be made valid again; a new one can be made.")}
      </AskFirst>
    </Stack>
  );
}

function NewKey() {
  const queries = useQueryClient();
  const admin = useAllows("administer");
  const [name, setName] = useState("");
  const [scope, setScope] = useState<Scope>("score");
  const [days, setDays] = useState("90");
  const [secret, show] = useState<string | null>(null);
  const make = useMutation({
    mutationFn: () => body(api.POST("/api/rewards/keys", { body: { name: name.trim(), scope, days: days === "" ? null : Number(days) } })),
    onSuccess: async (made) => {
      show(made.secret);
      setName("");
      await queries.invalidateQueries({ queryKey: ["rewards", "keys"] });
    },
  });
  const scopes: Scope[] = admin ? ["score", "read", "admin"] : ["score", "read"];
  return (
    <Stack className="panel" gap="xs">
      <Group align="end" gap="sm">
        <TextInput
          label={t("A key for")}
          placeholder={t("trainer")}
          value={name}
          onChange={(event) => setName(event.currentTarget.value)}
          error={name !== "" && !/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/.test(name.trim()) && t("letters, digits, . _ -")}
          w={180}
        />
        <Select
          label={t("Which may")}
          data={scopes.map((value) => ({ value, label: scopeInWords(value) }))}
          value={scope}
          onChange={(value) => value !== null && setScope(value as Scope)}
          allowDeselect={false}
          w={220}
        />
        <Select
          label={t("Good for")}
          data={[
            { value: "7", label: t("{{number}} days", { number: 7 }) },
            { value: "90", label: t("{{number}} days", { number: 90 }) },
            { value: "365", label: t("{{number}} days", { number: 365 }) },
            { value: "", label: t("until it is revoked") },
          ]}
          value={days}
          onChange={(value) => value !== null && setDays(value)}
          allowDeselect={false}
          w={170}
        />
        <Button onClick={() => make.mutate()} loading={make.isPending} disabled={name.trim() === ""}>
          {t("Make a key")}
        </Button>
      </Group>
      <Text size="xs" className="dim">
        {t("Sent as Authorization: Bearer KEY. The playground has a key of its own and needs none of these.")}
      </Text>
      {make.error !== null && <Failure error={make.error} />}
      <SecretDialog secret={secret} title={t("A key, shown this once")} label={t("Key")} onClose={() => show(null)}>
        {t("Copy it now: only its hash is kept here.")}
      </SecretDialog>
    </Stack>
  );
}

function scopeInWords(scope: Scope): string {
  return { score: t("ask for scores"), read: t("see which models there are"), admin: t("load, swap and unload models") }[scope];
}
