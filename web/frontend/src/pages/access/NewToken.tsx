import { Button, Group, Select, Stack, TextInput } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";

import { api, body } from "../../api/client";
import type { Role } from "../../api/session";
import { SecretDialog } from "../../components/SecretDialog";
import { Failure } from "../../components/States";
import { t } from "../../i18n";
import { roleChoices } from "./roles";

/** Roles that may no more than the first does. */
const WITHIN: Record<Role, Role[]> = {
  viewer: ["viewer"],
  annotator: ["annotator"],
  curator: ["viewer", "annotator", "curator"],
  admin: ["viewer", "annotator", "curator", "admin"],
};

/** Makes a token of one's own, with one's role or less, and shows it once. */
export function NewToken({ role: own }: { role: Role }) {
  const queries = useQueryClient();
  const [label, setLabel] = useState("");
  const [role, setRole] = useState<Role>(own);
  const [days, setDays] = useState("90");
  const [secret, show] = useState<string | null>(null);
  const make = useMutation({
    mutationFn: () => body(api.POST("/api/tokens", { body: { label: label.trim(), role, days: Number(days) } })),
    onSuccess: async (token) => {
      show(token.secret);
      setLabel("");
      await queries.invalidateQueries({ queryKey: ["tokens"] });
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    make.mutate();
  };
  return (
    <form onSubmit={submit}>
      <Stack className="panel" gap="xs">
        <Group align="end" gap="sm">
          <TextInput label={t("A token for")} placeholder={t("nightly import")} required value={label} maxLength={100} onChange={(event) => setLabel(event.currentTarget.value)} w={240} />
          <Select
            label={t("With the role")}
            data={roleChoices().filter((one) => WITHIN[own].includes(one.value))}
            value={role}
            onChange={(value) => value !== null && setRole(value as Role)}
            allowDeselect={false}
            w={150}
          />
          <Select
            label={t("Good for")}
            data={["1", "7", "30", "90", "365"].map((value) => ({ value, label: t("{{count}} days", { count: Number(value) }) }))}
            value={days}
            onChange={(value) => value !== null && setDays(value)}
            allowDeselect={false}
            w={130}
          />
          <Button type="submit" loading={make.isPending} disabled={label.trim() === ""}>
            {t("Make a token")}
          </Button>
        </Group>
        {make.error !== null && <Failure error={make.error} />}
        <SecretDialog secret={secret} title={t("A token, shown this once")} label={t("Token")} onClose={() => show(null)}>
          {t("Copy it now: only its hash is kept here. Programs send it as Authorization: Bearer TOKEN.")}
        </SecretDialog>
      </Stack>
    </form>
  );
}
