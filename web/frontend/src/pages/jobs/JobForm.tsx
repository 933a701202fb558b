import { Alert, Button, Group, Select, SimpleGrid, Stack, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useState, type FormEvent } from "react";

import { t } from "../../i18n";
import { Loaded } from "../curate/shared/Loaded";
import { FieldControl, type Field } from "./FieldControl";
import { NewLoopDialog } from "./NewLoopDialog";
import { NewOnlineLoopDialog } from "./NewOnlineLoopDialog";
import { StartDialog } from "./StartDialog";
import { useForm, type Job, type Settings, type Value } from "./useJobs";
import { explain, labelOf, titleOf } from "./words";

/** The settings of a job, the important ones first; what it would take is shown before anything starts. */
export function JobForm({ kind, first = {}, onStarted }: { kind: string; first?: Settings; onStarted: (job: Job) => void }) {
  const [settings, setSettings] = useState(first);
  const [asked, setAsked] = useState<Settings | null>(null);
  const [choice, setChoice] = useState<string | null>(null);
  const query = useForm(kind, choice ?? chosenIn(first));
  const change = (name: string, value: Value) => setSettings((before) => ({ ...before, [name]: value }));
  return (
    <Loaded query={query}>
      {(form) => {
        const chosen = form.choice === null ? null : (choice ?? chosenIn(first) ?? Object.keys(form.choices)[0] ?? null);
        const names = new Set(form.fields.map(({ name }) => name));
        const given = Object.entries(settings).filter(([name, value]) => names.has(name) && value !== null && value !== "");
        const complete: Settings = { ...Object.fromEntries(given), ...(form.choice !== null && chosen !== null ? { [form.choice]: chosen } : {}) };
        const missing = form.fields.filter(({ name, required }) => required && !(name in complete));
        const submit = (event: FormEvent) => {
          event.preventDefault();
          if (missing.length === 0) setAsked(complete);
        };
        return (
          <form onSubmit={submit} aria-label={titleOf(kind, form.title)}>
            <Stack gap="sm">
              <Text size="sm" className="dim">
                {explain(kind, form.summary)}
              </Text>
              {form.choice !== null && (
                <Select
                  label={labelOf(form.choice)}
                  maw={420}
                  searchable
                  data={Object.keys(form.choices)}
                  renderOption={({ option }) => (
                    <div>
                      <Text size="sm">{option.value}</Text>
                      <Text size="xs" className="dim">
                        {form.choices[option.value]}
                      </Text>
                    </div>
                  )}
                  value={chosen}
                  onChange={(value) => value !== null && setChoice(value)}
                  allowDeselect={false}
                />
              )}
              {form.fields.some(({ name }) => name === "config") && (
                <Loops dialog={kind === "loop" ? NewOnlineLoopDialog : NewLoopDialog} file={settings.config} onMade={(file) => change("config", file)} />
              )}
              <SimpleGrid cols={{ base: 1, sm: 2, lg: 3 }} spacing="sm" verticalSpacing="sm">
                {form.fields
                  .filter(({ prominent }) => prominent)
                  .map((field) => (
                    <FieldControl key={field.name} field={field} value={settings[field.name]} onChange={(value) => change(field.name, value)} />
                  ))}
              </SimpleGrid>
              <OtherSettings fields={form.fields.filter(({ prominent }) => !prominent)} settings={settings} onChange={change} />
              <Group gap="xs">
                <Button type="submit" disabled={missing.length > 0}>
                  {t("What would it take?")}
                </Button>
                {missing.length > 0 && (
                  <Text size="xs" className="dim">
                    {t("Still needed")}: {missing.map(({ name }) => labelOf(name)).join(", ")}
                  </Text>
                )}
              </Group>
            </Stack>
            {asked !== null && <StartDialog kind={kind} title={form.title} settings={asked} onClose={() => setAsked(null)} onStarted={onStarted} />}
          </form>
        );
      }}
    </Loaded>
  );
}

function chosenIn(settings: Settings): string | null {
  return typeof settings.method === "string" ? settings.method : null;
}

/** What the command has besides: a setting is looked for by name or by what it does, and then filled in. */
function OtherSettings({ fields, settings, onChange }: { fields: Field[]; settings: Settings; onChange: (name: string, value: Value) => void }) {
  const [added, setAdded] = useState<string[]>([]);
  const visible = fields.filter(({ name }) => added.includes(name) || (settings[name] ?? null) !== null);
  const hidden = fields.filter((field) => !visible.includes(field));
  if (fields.length === 0) return null;
  return (
    <Stack gap="sm">
      {visible.length > 0 && (
        <SimpleGrid cols={{ base: 1, sm: 2, lg: 3 }} spacing="sm" verticalSpacing="sm">
          {visible.map((field) => (
            <FieldControl key={field.name} field={field} value={settings[field.name]} onChange={(value) => onChange(field.name, value)} />
          ))}
        </SimpleGrid>
      )}
      {hidden.length > 0 && (
        <Select
          openOnFocus={false}
          label={t("Other settings")}
          placeholder={t("{{count}} more", { count: hidden.length })}
          maw={420}
          searchable
          data={hidden.map(({ name }) => ({ value: name, label: labelOf(name) }))}
          filter={({ options, search }) => {
            const wanted = search.trim().toLowerCase();
            const help = new Map(fields.map((field) => [field.name, field.help.toLowerCase()]));
            return options.filter((one) => "value" in one && `${one.value} ${one.label.toLowerCase()} ${help.get(one.value) ?? ""}`.includes(wanted));
          }}
          renderOption={({ option }) => (
            <div>
              <Text size="sm">{option.label}</Text>
              <Text size="xs" className="dim">
                {fields.find(({ name }) => name === option.value)?.help}
              </Text>
            </div>
          )}
          nothingFoundMessage={t("No setting is called so")}
          value={null}
          onChange={(name) => name !== null && setAdded((before) => [...before, name])}
        />
      )}
    </Stack>
  );
}

/** Describing a new loop, whose file the job then runs. */
function Loops({ dialog: Dialog, file, onMade }: { dialog: typeof NewLoopDialog; file: Value | undefined; onMade: (file: string) => void }) {
  const [opened, { open, close }] = useDisclosure();
  return (
    <Group gap="xs">
      <Button variant="default" onClick={open}>
        {t("Describe a new loop")}
      </Button>
      {typeof file !== "string" && (
        <Alert color="blue" py={4}>
          {t("Choose a loop's file below, or describe a new one.")}
        </Alert>
      )}
      {opened && (
        <Dialog
          onClose={close}
          onMade={(made) => {
            onMade(made);
            close();
          }}
        />
      )}
    </Group>
  );
}
