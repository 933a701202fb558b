import { Modal, Switch, Table, Text } from "@mantine/core";

const KEYS: [string, string][] = [
  ["a  b", "A, or B, is better"],
  ["0 1 2 3", "how much: barely, slightly, clearly, far; again to take it back. Press before a or b"],
  ["t", "tie: no difference that matters"],
  ["g  x", "both good, both bad"],
  ["s", "skip, then a key for the reason"],
  ["r", "write why; Escape back to the keys"],
  ["p", "to the principles: 1 yes, 2 partly, 3 no, arrows to move, Escape back to the keys"],
  ["e", "attach the words selected in a response to the principle that is marked"],
  ["d", "show or hide which words differ"],
  ["m", "texts as they are written, without Markdown"],
  ["u", "undo the last vote; its item comes again"],
  ["v", "adjudication: show the votes before deciding, which the records then say"],
  ["Enter", "on, where something is shown after a vote"],
  ["q", "leave; the item goes back to the queue"],
  ["?", "this list"],
];

interface KeyHelpProps {
  opened: boolean;
  onClose: () => void;
  keys: boolean;
  onKeys: (on: boolean) => void;
  pause: boolean;
  onPause: (on: boolean) => void;
}

/** Every key, and the switches of a session. */
export function KeyHelp({ opened, onClose, keys, onKeys, pause, onPause }: KeyHelpProps) {
  return (
    <Modal opened={opened} onClose={onClose} title="Keys" size="md" transitionProps={{ duration: 0 }}>
      <Table withRowBorders={false}>
        <Table.Tbody>
          {KEYS.map(([key, what]) => (
            <Table.Tr key={key}>
              <Table.Th w={90} style={{ fontFamily: "var(--mantine-font-family-monospace)" }}>
                {key}
              </Table.Th>
              <Table.Td>{what}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
      <Switch mt="sm" label="Single keys" checked={keys} onChange={(event) => onKeys(event.currentTarget.checked)} />
      <Text size="xs" className="dim" pl={44}>
        Off: only the buttons decide, for those whose voice or keyboard presses keys by itself.
      </Text>
      <Switch mt="sm" label="Stop after a vote when judges' opinions are shown" checked={pause} onChange={(event) => onPause(event.currentTarget.checked)} />
    </Modal>
  );
}
