import { Button, Group, Modal, SegmentedControl, Stack, TagsInput, Text, TextInput, Title } from "@mantine/core";
import { useState } from "react";

import { api, body } from "../../../../api/client";
import { t } from "../../../../i18n";
import { useEdit, type Settings } from "./useSettings";

/** To everybody in the project, or to some people and groups. */
export function Assignment({ queue, settings }: { queue: string; settings: Settings }) {
  const [some, setSome] = useState(settings.people !== null);
  const [people, setPeople] = useState(settings.people ?? []);
  const [groups, setGroups] = useState(settings.groups ?? []);
  const [editing, setEditing] = useState<string | null>(null);
  const store = useEdit(
    queue,
    () => body(api.PUT("/api/queues/{queue}/people", { params: { path: { queue } }, body: some ? { people, groups } : {} })),
    t("Stored"),
  );
  return (
    <section className="panel" aria-label={t("Assigned to")}>
      <Title order={2} mb={4}>
        {t("Assigned to")}
      </Title>
      <Stack gap="xs">
        <SegmentedControl
          aria-label={t("Who is asked")}
          value={some ? "some" : "all"}
          onChange={(value) => setSome(value === "some")}
          data={[
            { value: "all", label: t("Everybody in {{project}}", { project: settings.queue.project }) },
            { value: "some", label: t("People and groups") },
          ]}
        />
        {some && (
          <>
            <TagsInput label={t("People")} data={settings.known_people} value={people} onChange={setPeople} splitChars={[","]} />
            <TagsInput
              label={t("Groups")}
              description={Object.entries(settings.known_groups).map(([name, members]) => `${name}: ${members.join(", ")}`).join("; ") || t("There are no groups in this project yet.")}
              data={Object.keys(settings.known_groups)}
              value={groups}
              onChange={setGroups}
              splitChars={[]}
            />
            <Text size="sm" className="dim">
              {t("Nobody else gets items of it, and other annotators do not see it. Who has voted already keeps those votes.")}
            </Text>
          </>
        )}
        <Group gap="xs">
          <Button onClick={() => store.mutate(undefined)} loading={store.isPending} disabled={some && people.length + groups.length === 0}>
            {t("Store who is asked")}
          </Button>
          <Button variant="subtle" onClick={() => setEditing("")}>
            {t("New group")}
          </Button>
          {Object.keys(settings.known_groups).map((name) => (
            <Button key={name} variant="subtle" color="gray" onClick={() => setEditing(name)}>
              {t("Edit {{name}}", { name })}
            </Button>
          ))}
        </Group>
      </Stack>
      {editing !== null && <GroupDialog key={editing} queue={queue} settings={settings} name={editing} close={() => setEditing(null)} />}
    </section>
  );
}

function GroupDialog({ queue, settings, name, close }: { queue: string; settings: Settings; name: string; close: () => void }) {
  const [title, setTitle] = useState(name);
  const [people, setPeople] = useState(settings.known_groups[name] ?? []);
  const path = { project: settings.queue.project, name: title.trim() };
  const store = useEdit(queue, (members: string[]) =>
    api.PUT("/api/projects/{project}/groups/{name}", { params: { path }, body: { people: members } }),
  );
  return (
    <Modal opened onClose={close} title={name === "" ? t("New group") : t("Group {{name}}", { name })}>
      <Stack gap="sm">
        {name === "" && <TextInput label={t("Name")} required maxLength={100} value={title} onChange={(event) => setTitle(event.currentTarget.value)} />}
        <TagsInput label={t("People")} description={t("Enter ends each.")} data={settings.known_people} value={people} onChange={setPeople} splitChars={[","]} />
        <Group justify="flex-end" gap="xs">
          {name !== "" && (
            <Button variant="light" color="red" onClick={() => store.mutate([], { onSuccess: close })}>
              {t("Delete the group")}
            </Button>
          )}
          <Button loading={store.isPending} disabled={path.name === "" || people.length === 0} onClick={() => store.mutate(people, { onSuccess: close })}>
            {t("Store the group")}
          </Button>
        </Group>
      </Stack>
    </Modal>
  );
}
