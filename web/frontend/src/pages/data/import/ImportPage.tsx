import "./import.css";

import { Anchor, Button, Group, Select, Stack, Text, TextInput, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";
import { Link, useSearchParams } from "react-router";

import { api, body } from "../../../api/client";
import { useAllows, useSession } from "../../../api/session";
import { Empty, Failure, Waiting } from "../../../components/States";
import { t } from "../../../i18n";
import { FileList } from "./FileList";
import { ImportForm } from "./ImportForm";
import { UploadZone } from "./UploadZone";

/** From a file, of this machine, of the server or of the hub, to comparisons. Which one is in the address. */
export function ImportPage() {
  const allowed = useAllows("curate");
  const { name, role } = useSession();
  if (!allowed)
    return (
      <Empty title={t("Importing takes the role curator")}>
        {t("You are signed in as {{name}}, {{role}}.", { name, role })}
      </Empty>
    );
  return <Import />;
}

function Import() {
  const [address, setAddress] = useSearchParams();
  const place = address.get("file");
  const open = (chosen: string) => setAddress({ file: chosen });
  const uploads = useQuery({ queryKey: ["uploads"], queryFn: () => body(api.GET("/api/uploads")) });
  const choices = useQuery({ queryKey: ["import-choices"], queryFn: () => body(api.GET("/api/imports/choices")), staleTime: 30_000 });
  return (
    <Stack gap="md" maw={1200}>
      <Group justify="space-between">
        <Title order={1}>{t("Import data")}</Title>
        {place !== null && (
          <Anchor component={Link} to="/data/import" size="sm">
            {t("Another file")}
          </Anchor>
        )}
      </Group>
      {place !== null ? (
        <ImportForm key={place} place={place} choices={choices.data} />
      ) : (
        <>
          <UploadZone uploads={uploads.data} onFile={(file) => open(`uploads/${file}`)} />
          {uploads.data !== undefined ? (
            <FileList uploads={uploads.data} onFile={(file) => open(`uploads/${file}`)} />
          ) : uploads.failureReason !== null ? (
            <Failure error={uploads.failureReason} />
          ) : (
            <Waiting />
          )}
          <Elsewhere files={choices.data?.files ?? []} onPlace={open} />
        </>
      )}
    </Stack>
  );
}

/** Files that are on the server already, and data sets of the hub. */
function Elsewhere({ files, onPlace }: { files: string[]; onPlace: (place: string) => void }) {
  const [name, setName] = useState("");
  const submit = (event: FormEvent) => {
    event.preventDefault();
    onPlace(`hf:${name.trim()}`);
  };
  return (
    <Group align="start" gap="xl">
      {files.length > 0 && (
        <Select label={t("Or a file on the server")} data={files} value={null} onChange={(chosen) => chosen !== null && onPlace(chosen)} searchable w={300} placeholder={t("choose")} />
      )}
      <form onSubmit={submit}>
        <Group align="end" gap="xs">
          <TextInput
            label={t("Or a data set of the Hugging Face hub")}
            placeholder="owner/name"
            value={name}
            onChange={(event) => setName(event.currentTarget.value)}
            pattern="\s*[\w.\-]+(/[\w.\-]+)?\s*"
            required
            withAsterisk={false}
            w={300}
          />
          <Button type="submit" variant="default">
            {t("Look into it")}
          </Button>
        </Group>
        <Text size="xs" className="dim" mt={4}>
          {t("The server fetches it, so it takes a connection of the server to the internet.")}
        </Text>
      </form>
    </Group>
  );
}
