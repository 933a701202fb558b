import { Button, Group, Modal, SimpleGrid, Stack, Text, TextInput } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import type { FormEvent, ReactNode } from "react";

import { Failure } from "../../components/States";
import { t } from "../../i18n";

interface Props {
  title: string;
  about?: string;
  name: string;
  nameHelp?: string;
  /** What the file takes that the form does not ask for. */
  rest: string;
  /** The fields beside the name. */
  children: ReactNode;
  onName: (name: string) => void;
  write: () => Promise<{ file: string }>;
  onClose: () => void;
  onMade: (file: string) => void;
}

/** A loop in a few fields, written into a file that can be edited before the job begins. */
export function LoopDialog({ title, about, name, nameHelp, rest, children, onName, write, onClose, onMade }: Props) {
  const queries = useQueryClient();
  const make = useMutation({
    mutationFn: write,
    onSuccess: async ({ file }) => {
      await queries.invalidateQueries({ queryKey: ["jobs", "form"] });
      onMade(file);
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    event.stopPropagation(); // the form of the job is around it
    make.mutate();
  };
  return (
    <Modal opened onClose={onClose} title={title} size="lg" closeButtonProps={{ "aria-label": t("Close") }}>
      <form onSubmit={submit}>
        <Stack gap="sm">
          {about !== undefined && (
            <Text size="sm" className="dim">
              {about}
            </Text>
          )}
          <TextInput label={t("Name")} description={nameHelp} required value={name} onChange={(event) => onName(event.currentTarget.value.trim())} data-autofocus />
          <SimpleGrid cols={{ base: 1, xs: 2 }} spacing="sm">
            {children}
          </SimpleGrid>
          <Text size="xs" className="dim">
            {rest}
          </Text>
          {make.error !== null && <Failure error={make.error} />}
          <Group justify="end" gap="xs">
            <Button variant="default" onClick={onClose}>
              {t("Not now")}
            </Button>
            <Button type="submit" loading={make.isPending} disabled={name === ""}>
              {t("Write it down")}
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
