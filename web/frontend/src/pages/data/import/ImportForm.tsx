import { Alert, Button, Checkbox, Collapse, Group, Select, SimpleGrid, Stack, Text, TextInput, Title } from "@mantine/core";
import { keepPreviousData, useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useNavigate } from "react-router";

import { api, body, type Schemas } from "../../../api/client";
import { Failure, Waiting } from "../../../components/States";
import { count } from "../../../format/count";
import { t } from "../../../i18n";
import { AS_RECOGNISED, importSettings, previewBody, type Asked } from "./asked";
import { ColumnTable } from "./ColumnTable";
import { Examples, Refused } from "./Examples";

/** What a file would be read as, what to change about that, and its import. */
export function ImportForm({ place, choices }: { place: string; choices: Schemas["ImportChoices"] | undefined }) {
  const navigate = useNavigate();
  const [asked, setAsked] = useState<Asked>({ file: place, ...AS_RECOGNISED });
  const [source, setSource] = useState("");
  const [more, setMore] = useState(false);
  const [consent, setConsent] = useState(false);
  const wanted = previewBody(asked);
  const preview = useQuery({
    queryKey: ["import-preview", wanted],
    queryFn: () => body(api.POST("/api/imports/preview", { body: wanted })),
    placeholderData: keepPreviousData,
    staleTime: 30_000,
  });
  const start = useMutation({
    mutationFn: () => body(api.POST("/api/jobs", { body: { kind: "import", settings: importSettings(asked, source, unreadable && consent), token: null } })),
    onSuccess: ({ id }) => navigate(`/jobs/${id}`),
  });
  const seen = preview.data;
  const unreadable = seen?.mostly_unreadable ?? false;
  const ready = seen !== undefined && !preview.isError && !preview.isFetching && seen.readable > 0 && (!unreadable || consent);
  const changed = asked.format !== "auto" || Object.keys(asked.mapping).length > 0;
  return (
    <Stack gap="md">
      <Group justify="space-between" align="end">
        <div>
          <Title order={2} size="h3" className="import-place">
            {nameOf(place)}
          </Title>
          {seen !== undefined && !preview.isError && <Recognised seen={seen} />}
        </div>
        <Group gap="xs">
          {changed && (
            <Button variant="default" size="sm" onClick={() => setAsked({ file: place, ...AS_RECOGNISED })}>
              {t("As recognised")}
            </Button>
          )}
          <Button size="sm" onClick={() => start.mutate()} disabled={!ready} loading={start.isPending}>
            {t("Import")}
          </Button>
        </Group>
      </Group>
      {start.error !== null && <Failure error={start.error} />}
      {preview.isError ? <Failure error={preview.error} /> : preview.isPending ? preview.failureReason !== null ? <Failure error={preview.failureReason} /> : <Waiting what={t("Reading the first rows")} /> : null}
      {seen !== undefined && !preview.isError && (
        <>
          {seen.columns.length > 0 && choices !== undefined && <ColumnTable columns={seen.columns} targets={choices.targets} asked={asked} onChange={setAsked} />}
          {unreadable && seen.readable > 0 && (
            <Alert color="yellow" title={t("Only {{readable}} of the first {{rows}} rows can be read", { readable: count(seen.readable), rows: count(seen.rows) })}>
              <Checkbox checked={consent} onChange={(event) => setConsent(event.currentTarget.checked)} label={t("Import those")} />
            </Alert>
          )}
          <Refused preview={seen} />
          <div>
            <Button variant="subtle" size="compact-sm" onClick={() => setMore(!more)} aria-expanded={more}>
              {t("More settings")}
            </Button>
            <Collapse expanded={more}>
              <SimpleGrid cols={{ base: 1, sm: 2, lg: 4 }} spacing="sm" mt="xs">
                <TextInput label={t("Name of the source")} placeholder={t("the rows' own, else the file's")} value={source} maxLength={200} onChange={(event) => setSource(event.currentTarget.value)} />
                <Select
                  label={t("Format")}
                  data={[{ value: "auto", label: t("as recognised") }, ...(choices?.containers ?? []), ...(choices?.layouts ?? [])]}
                  value={asked.format}
                  onChange={(format) => setAsked({ ...asked, format: format ?? "auto", ...(format === null || format === "auto" ? {} : { mapping: {}, values: {} }) })}
                  searchable
                  allowDeselect={false}
                />
                <TextInput label={t("Split")} placeholder="train" value={asked.split} maxLength={100} onChange={(event) => setAsked({ ...asked, split: event.currentTarget.value })} />
                {place.startsWith("hf:") ? (
                  <TextInput label={t("Configuration")} value={asked.subset} maxLength={100} onChange={(event) => setAsked({ ...asked, subset: event.currentTarget.value })} />
                ) : (
                  <TextInput label={t("Encoding of a CSV file")} placeholder={t("as recognised")} value={asked.encoding} maxLength={40} onChange={(event) => setAsked({ ...asked, encoding: event.currentTarget.value })} />
                )}
              </SimpleGrid>
            </Collapse>
          </div>
          {seen.examples.length > 0 && (
            <section>
              <Title order={3} size="h5" mb={6}>
                {t("The first rows, as they would be imported")}
              </Title>
              <Examples preview={seen} />
            </section>
          )}
        </>
      )}
    </Stack>
  );
}

function Recognised({ seen }: { seen: Schemas["ImportPreview"] }) {
  if (seen.recognised === null)
    return (
      <Text size="sm" role="status">
        <b>{t("Say what the columns are")}</b>: {t("Choose the prompt, and the chosen and rejected response; or responses A and B and the label.")}
      </Text>
    );
  const counts = Object.entries(seen.counts).map(([kind, number]) => `${count(number)} ${kind}`);
  return (
    <Text size="sm" className="dim" role="status">
      {seen.recognised}
      {` · ${t("{{readable}} of the first {{rows}} rows can be read", { readable: count(seen.readable), rows: count(seen.rows) })}`}
      {counts.length > 0 && `: ${counts.join(", ")}`}
    </Text>
  );
}

function nameOf(place: string): string {
  return place.startsWith("uploads/") ? place.slice("uploads/".length) : place;
}
