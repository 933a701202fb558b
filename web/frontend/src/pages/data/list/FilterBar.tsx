import { Button, Collapse, Group, MultiSelect, NumberInput, Select, TextInput } from "@mantine/core";
import { useDebouncedCallback, useDisclosure, useMediaQuery } from "@mantine/hooks";
import { IconFilter, IconSearch } from "@tabler/icons-react";
import { useState } from "react";
import { useSearchParams } from "react-router";

import { poolChoices } from "../../../components/PoolBadge";
import type { Schemas } from "../../../api/client";
import { count } from "../../../format/count";
import { t } from "../../../i18n";
import { CONFLICTS, filtersSet, isId, LABELS, MANY, ONE, POOLS, translated } from "./filters";

type Facets = Schemas["ComparisonFacets"];
/** These change with each key: Back leads to what was before them. */
const TYPED = ["text", "id", "reward_low", "reward_high"];
type Change = (changes: Record<string, string | string[] | null>) => void;

/** Everything that can be asked, in the address. */
export function FilterBar({ facets }: { facets: Facets | undefined }) {
  const [address, setAddress] = useSearchParams();
  const narrow = useMediaQuery("(max-width: 48em)");
  const [opened, { toggle }] = useDisclosure();
  const set = filtersSet(address);
  const change: Change = (changes) =>
    setAddress(
      (before) => {
        const after = new URLSearchParams(before);
        for (const [name, value] of Object.entries(changes)) {
          after.delete(name);
          if (Array.isArray(value)) for (const one of value) after.append(name, one);
          else if (value) after.set(name, value);
        }
        return after;
      },
      { replace: Object.keys(changes).every((name) => TYPED.includes(name)) },
    );
  const clear = () => change(Object.fromEntries([...MANY, ...ONE.filter((name) => name !== "order")].map((name) => [name, null])));
  return (
    <div role="search" aria-label={t("Comparisons")}>
      <Group gap="xs" align="end">
        <SearchBox key={`${address.get("text")} ${address.get("id")}`} address={address} change={change} />
        {narrow && (
          <Button variant="default" onClick={toggle} aria-expanded={opened} leftSection={<IconFilter size={14} />}>
            {t("Filters")}
            {set > 0 && ` (${set})`}
          </Button>
        )}
        {!narrow && <Fields facets={facets} address={address} change={change} />}
        {set > 0 && (
          <Button variant="subtle" onClick={clear}>{t("Clear")}</Button>
        )}
      </Group>
      {narrow && (
        <Collapse expanded={opened}>
          <Group gap="xs" align="end" mt="xs">
            <Fields facets={facets} address={address} change={change} />
          </Group>
        </Collapse>
      )}
    </div>
  );
}

interface Part {
  address: URLSearchParams;
  change: Change;
}

/** One box for texts and ids: an id of ours is told by its form, a source's own by choosing "Id". */
function SearchBox({ address, change }: Part) {
  const [by, setBy] = useState<"text" | "id">(address.get("id") ? "id" : "text");
  const asked = address.get("id") ?? address.get("text") ?? "";
  const [typed, setTyped] = useState(asked);
  const [before, setBefore] = useState(asked);
  if (asked !== before) {
    setBefore(asked); // by the browser's Back
    if (asked !== typed.trim()) setTyped(asked);
  }
  const search = (value: string, kind: "text" | "id") => {
    const name = isId(value) ? "id" : kind;
    change({ text: null, id: null, [name]: value.trim() || null });
  };
  const soon = useDebouncedCallback(search, 500);
  return (
    <Group gap={0} align="end" wrap="nowrap">
      <Select
        aria-label={t("Search in")}
        w={76}
        allowDeselect={false}
        data={[
          { value: "text", label: t("Text") },
          { value: "id", label: t("Id") },
        ]}
        value={by}
        onChange={(value) => {
          setBy(value as "text" | "id");
          if (typed.trim()) search(typed, value as "text" | "id");
        }}
      />
      <TextInput
        aria-label={by === "id" ? t("Id of a comparison, prompt, response, judgment or record") : t("Text in a prompt or response")}
        placeholder={by === "id" ? t("c-..., p-..., r-..., j-..., record") : t("in prompts and responses")}
        leftSection={<IconSearch size={14} />}
        w={240}
        value={typed}
        onChange={(event) => {
          setTyped(event.currentTarget.value);
          soon(event.currentTarget.value, by);
        }}
        onKeyDown={(event) => {
          if (event.key === "Enter") {
            soon.cancel();
            search(typed, by);
          }
        }}
      />
    </Group>
  );
}

function Fields({ facets, address, change }: Part & { facets: Facets | undefined }) {
  const listed = (values: Facets["sources"] | undefined, name: string) => {
    const options = (values ?? []).map((one) => ({ value: one.value, label: `${one.value} (${count(one.origins)})` }));
    const missing = address.getAll(name).filter((value) => !options.some((one) => one.value === value));
    return [...options, ...missing.map((value) => ({ value, label: value }))];
  };
  const many = (name: string, label: string, data: (string | { value: string; label: string })[], width: number) => (
    <MultiSelect
      label={label}
      placeholder={address.has(name) ? undefined : t("all")}
      w={width}
      data={data}
      searchable={data.length > 8}
      clearable
      hidePickedOptions
      limit={200}
      value={address.getAll(name)}
      onChange={(value) => change({ [name]: value })}
      comboboxProps={{ width: 260, position: "bottom-start" }}
    />
  );
  const model = address.get("scored_by");
  return (
    <>
      {many("pool", t("Pool"), poolChoices(POOLS), 130)}
      {many("label", t("Label"), translated(LABELS), 110)}
      {many("source", t("Source"), listed(facets?.sources, "source"), 150)}
      {many("category", t("Category"), listed(facets?.categories, "category"), 150)}
      {many("language", t("Language"), listed(facets?.languages, "language"), 110)}
      <Select
        label={t("Disagreement")}
        placeholder={t("any or none")}
        clearable
        w={170}
        data={translated(CONFLICTS)}
        value={address.get("conflict")}
        onChange={(value) => change({ conflict: value })}
        comboboxProps={{ width: 230, position: "bottom-start" }}
      />
      {(facets === undefined || facets.models.length > 0 || model !== null) && (
        <Select
          label={t("Scored by")}
          placeholder={t("any model")}
          clearable
          w={150}
          data={facets?.models.map((one) => one.model) ?? (model ? [model] : [])}
          value={model}
          onChange={(value) => change({ scored_by: value, reward_low: null, reward_high: null })}
        />
      )}
      {model !== null && <Rewards key={model} facets={facets} address={address} change={change} />}
      <Select
        label={t("Order")}
        w={130}
        allowDeselect={false}
        data={[
          { value: "oldest", label: t("oldest first") },
          { value: "newest", label: t("newest first") },
        ]}
        value={address.get("order") ?? "oldest"}
        onChange={(value) => change({ order: value === "oldest" ? null : value })}
      />
    </>
  );
}

function Rewards({ facets, address, change }: Part & { facets: Facets | undefined }) {
  const options = facets?.models.find((one) => one.model === address.get("scored_by"));
  const soon = useDebouncedCallback((name: string, value: string | number) => change({ [name]: String(value) || null }), 500);
  const bound = (name: string, label: string, extreme: number | null | undefined) => (
    <NumberInput
      label={label}
      placeholder={extreme == null ? undefined : extreme.toPrecision(3)}
      w={100}
      step={0.5}
      defaultValue={address.get(name) ?? undefined}
      onChange={(value) => soon(name, value)}
    />
  );
  return (
    <>
      {bound("reward_low", t("Reward from"), options?.low)}
      {bound("reward_high", "to", options?.high)}
    </>
  );
}
