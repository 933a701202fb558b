import "./keys.css";

import { Alert, Button, Group, Modal, Switch, Table, Text } from "@mantine/core";
import { useEffect, useState } from "react";

import { t } from "../../../i18n";
import type { Action } from "./actions";
import type { KeyGroup } from "./groups";
import { mayBeChosen, useKeymap } from "./keymap";
import { labelAt } from "./layout";
import { positionOf } from "./positions";

interface KeyHelpProps {
  opened: boolean;
  onClose: () => void;
  groups: KeyGroup[];
  keys: boolean;
  onKeys: (on: boolean) => void;
  pause: boolean;
  onPause: (on: boolean) => void;
}

/** Every key as it is now, to be changed by its person, and the switches of a session. */
export function KeyHelp({ opened, onClose, groups, keys, onKeys, pause, onPause }: KeyHelpProps) {
  return (
    <Modal opened={opened} onClose={onClose} title={t("Keyboard")} size="lg" transitionProps={{ duration: 0 }} closeOnEscape={false}>
      <KeyTable groups={groups} onClose={onClose} />
      <Switch mt="sm" label={t("Single keys")} checked={keys} onChange={(event) => onKeys(event.currentTarget.checked)} />
      <Text size="xs" className="dim" ps={44}>
        {t("Off: only the buttons decide, for those whose voice or keyboard presses keys by itself.")}
      </Text>
      <Switch mt="sm" label={t("Stop after a vote when judges' opinions are shown")} checked={pause} onChange={(event) => onPause(event.currentTarget.checked)} />
    </Modal>
  );
}

type Clash = { wanted: Action; position: string; holder: Action | null };

function KeyTable({ groups, onClose }: { groups: KeyGroup[]; onClose: () => void }) {
  const keymap = useKeymap();
  const [asking, setAsking] = useState<Action | null>(null);
  const [clash, setClash] = useState<Clash | null>(null);
  /** Those that are alive together with an action. */
  const beside = (action: Action) => (groups.find((group) => group.apart && group.actions.includes(action)) ? groups.filter((group) => group.apart) : groups.filter((group) => !group.apart)).flatMap((group) => group.actions);

  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      if (asking === null) {
        if (event.key === "Escape") onClose();
        return;
      }
      if (["Shift", "Control", "Alt", "Meta", "AltGraph", "CapsLock", "Tab"].includes(event.key)) return;
      event.preventDefault();
      event.stopPropagation();
      setAsking(null);
      if (event.key === "Escape") return;
      const position = positionOf(event);
      const holder = keymap.holder(position, asking, beside(asking)) ?? null;
      if (!mayBeChosen(position) || event.ctrlKey || event.metaKey || event.altKey) setClash({ wanted: asking, position, holder: null });
      else if (holder !== null) setClash({ wanted: asking, position, holder });
      else {
        setClash(null);
        keymap.choose(asking, position);
      }
    };
    document.addEventListener("keydown", pressed, true);
    return () => document.removeEventListener("keydown", pressed, true);
  });

  return (
    <>
      {clash !== null && (
        <Alert color="yellow" p="xs" mb="xs" role="alert">
          {clash.holder === null ? (
            t("{{key}} stays what it is; choose a letter, a digit or a sign.", { key: labelAt(clash.position) })
          ) : (
            <Group gap="xs">
              <Text size="sm">
                {t("{{key}} is taken: {{what}}.", { key: labelAt(clash.position), what: clash.holder.what() })}
              </Text>
              <Button
                variant="light"
                color="yellow"
                onClick={() => {
                  keymap.swap(clash.wanted, clash.holder!);
                  setClash(null);
                }}
              >
                {t("Swap the two")}
              </Button>
            </Group>
          )}
        </Alert>
      )}
      <Table withRowBorders={false} className="keys">
        {groups.map(({ title, actions }) => (
          <Table.Tbody key={title}>
            <Table.Tr>
              <Table.Th colSpan={2} scope="rowgroup" className="dim">
                {title}
              </Table.Th>
            </Table.Tr>
            {actions.map((action) => {
              const inner = keymap.holder(keymap.positionOf(action), action, beside(action));
              const shadowed = inner !== undefined && beside(action).indexOf(inner) < beside(action).indexOf(action);
              return (
                <Table.Tr key={action.id}>
                  <Table.Td w={84}>
                    <Button
                      size="compact-xs"
                      variant={asking?.id === action.id ? "filled" : "default"}
                      fullWidth
                      aria-label={asking?.id === action.id ? t("Press the new key") : t("{{key}}: change this key", { key: keymap.label(action) })}
                      onClick={() => {
                        setClash(null);
                        setAsking(asking?.id === action.id ? null : action);
                      }}
                    >
                      {asking?.id === action.id ? t("press …") : keymap.label(action)}
                    </Button>
                  </Table.Td>
                  <Table.Td>
                    {action.what()}
                    {shadowed && <span className="dim"> ({t("here the key means: {{what}}", { what: inner.what() })})</span>}
                  </Table.Td>
                </Table.Tr>
              );
            })}
          </Table.Tbody>
        ))}
      </Table>
      <Group gap="sm" mt={6}>
        <Button variant="light" color="gray" disabled={!keymap.changed} onClick={keymap.reset}>
          {t("All keys as they were")}
        </Button>
        <Text size="xs" className="dim">
          {t("Press a key's button, then the new key; Escape leaves it. Keys go by their place on the keyboard: Caps Lock and other layouts change nothing. Kept in this browser.")}
        </Text>
      </Group>
    </>
  );
}
