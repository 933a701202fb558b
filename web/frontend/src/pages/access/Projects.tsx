import { Button, Group, Pill, Select, Stack, Text, TextInput, Title } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";

import { api, body } from "../../api/client";
import { Failure, Waiting } from "../../components/States";
import { t } from "../../i18n";

/** Whose queues each account sees. `managed`: whether this server lets it be changed. */
export function Projects({ managed }: { managed: boolean }) {
  const queries = useQueryClient();
  const [member, setMember] = useState({ name: null as string | null, project: "" });
  const projects = useQuery({ queryKey: ["projects"], queryFn: () => body(api.GET("/api/projects")) });
  const accounts = useQuery({ queryKey: ["accounts"], queryFn: () => body(api.GET("/api/accounts")) });
  const change = useMutation({
    mutationFn: ({ joins, ...path }: { joins: boolean; project: string; name: string }) =>
      joins
        ? api.PUT("/api/projects/{project}/members/{name}", { params: { path } })
        : api.DELETE("/api/projects/{project}/members/{name}", { params: { path } }),
    onSettled: () => queries.invalidateQueries({ queryKey: ["projects"] }),
  });
  const failed = change.error ?? projects.failureReason;
  if (projects.data === undefined) return failed === null ? <Waiting what={t("Projects are loading")} /> : <Failure error={failed} />;
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (member.name !== null) change.mutate({ joins: true, project: member.project, name: member.name });
  };
  return (
    <Stack gap="sm">
      {failed !== null && <Failure error={failed} />}
      {managed && (
        <form onSubmit={submit}>
          <Group className="panel" align="end" gap="sm">
            <Select
              label={t("Account")}
              data={accounts.data?.accounts.map(({ name }) => name) ?? []}
              value={member.name}
              onChange={(name) => setMember({ ...member, name })}
              w={180}
            />
            <TextInput
              label={t("Project")}
              required
              pattern="[A-Za-z0-9][A-Za-z0-9_.+\-]{0,99}"
              title={t("Letters and digits; after the first also . _ + -")}
              value={member.project}
              onChange={(event) => setMember({ ...member, project: event.currentTarget.value })}
              w={180}
            />
            <Button type="submit" loading={change.isPending} disabled={member.name === null}>
              {t("Add the member")}
            </Button>
          </Group>
        </form>
      )}
      {projects.data.map(({ name: project, members, queues }) => (
        <section key={project} className="panel" aria-label={t("Project {{project}}", { project })}>
          <Title order={2} size="sm">
            {project}
          </Title>
          <Group gap={4} my={4}>
            {members.map((name) => (
              <Pill
                key={name}
                withRemoveButton={managed}
                onRemove={() => change.mutate({ joins: false, project, name })}
                removeButtonProps={{ "aria-label": t("Remove {{name}} from {{project}}", { name, project }), "aria-hidden": false, tabIndex: 0 }}
              >
                {name}
              </Pill>
            ))}
          </Group>
          <Text size="sm" className="dim">
            {members.length === 0 && t("No members: administrators alone see its queues. ")}
            {queues.length === 0 ? t("No queues.") : t("Queues: {{queues}}", { queues: queues.join(", ") })}
          </Text>
        </section>
      ))}
    </Stack>
  );
}
